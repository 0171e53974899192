"""Named consumers, whose batches are neither lost nor taken twice: `consumers/`.

Start with `consumer.py`.
"""
