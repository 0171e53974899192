"""fsmq on real NFS: the kernel's server and two client hosts, in a virtual machine.

    python -m tests.soak.nfs

`image` builds the machine from Debian's packages, and `machine` boots it to run one program. Each
program has an `export` that two hosts mount: `guest` runs `memory` and `same_ids` with a `rival` on
each host, and then `two_hosts`; the others are `ordered_logs` and `log_rates`.
"""
