"""The fast path: plain requests about messages, taken as bytes and done together.

Whatever the fast path is not sure of goes to aiohttp, with the very bytes that came: see
`fast_path.py`.
"""
