"""The codes with which the programs end.

Apart from the supervisor, which brings asyncio with it: the mover and the reaper need none.
"""

EXIT_CLEAN, EXIT_FAILED, EXIT_USAGE, EXIT_CONFIGURATION = 0, 1, 2, 78
