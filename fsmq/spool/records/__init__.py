"""What is noted of the work, and never needed for it: journal, metrics, reports, peers.

Folders: `journal/`, `metrics/`, `peers/`.
"""
