"""fsmq on real NFS: the kernel's server and two client hosts, in a virtual machine.

    python -m tests.soak.nfs

`image` makes the machine from Debian's packages, `machine` boots it, `guest` is what runs in it: an
`export`, and on two hosts a `rival` each, for `memory` and `same_ids`, and then a `suites`.
"""
