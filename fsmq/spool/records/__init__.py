"""Records of the work, which no work depends on: journal, metrics, reports, peers.

Folders: `journal/`, `metrics/`, `peers/`.
"""
