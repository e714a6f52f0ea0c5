"""The command line.

Help works in a checkout without dependencies: before `bootstrap.ensure`, only the standard library is
imported.
"""
