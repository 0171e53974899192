"""The disk says no: faults under running programs, and how service returns when they end.

Two kinds. What a disk can be made to do for real is done: full, without inodes, read-only, a folder
removed, no descriptors left. What no disk does on demand (errors and delays of single calls) strace
puts in the place of the call, in programs that run and know nothing of it: on any filesystem, with
the very calls that production makes (a FUSE layer would be a network filesystem to fsmq, without
syncfs and RENAME_NOREPLACE; libfiu knows neither those nor the *at calls), and off again at once.
"""
