"""The exit codes of the programs.

Not in the supervisor, because that imports asyncio, which the mover and the reaper do not need.
"""

EXIT_CLEAN, EXIT_FAILED, EXIT_USAGE, EXIT_CONFIGURATION = 0, 1, 2, 78
