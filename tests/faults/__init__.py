"""Faults of disks under running programs, and how service returns when they end.

Some faults are real: a full disk, no inodes, a read-only disk, a removed folder, no descriptors.
Errors and delays of single calls are injected by strace, into running programs on any filesystem.
(A FUSE layer would be a network filesystem to fsmq, without syncfs and RENAME_NOREPLACE; libfiu
knows neither those nor the *at calls.)
"""
