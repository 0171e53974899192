"""fsmq on real NFS: the kernel's server and two client hosts, in a virtual machine.

    python -m tests.nfs.soak

`image` makes the machine from Debian's packages, `machine` boots it, `guest` is what runs in it:
an `export`, and a `battle` of two hosts on it.
"""
