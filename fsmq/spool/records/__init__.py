"""Records about the work, on which nothing depends: journal, metrics, reports, peers.

Folders: `journal/`, `metrics/`, `peers/`.
"""
