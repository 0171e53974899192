"""The fast path: plain requests about messages, parsed from bytes and done together.

All other requests go to aiohttp with the bytes as they came: see `fast_path.py`.
"""
