"""The command line: what people and cron type. `commands` is the table; each handler is imported when it is called.

Nothing but the standard library is imported until `dispatch` has seen to the dependencies, so that a fresh checkout can say
what it is, and help can be read anywhere.
"""
