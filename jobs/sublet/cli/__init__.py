"""The command line. `commands` has the table of commands; the module of a command is imported when it runs.

Before `main` has called `bootstrap.ensure`, only the standard library is imported: help works in a checkout without
dependencies.
"""
