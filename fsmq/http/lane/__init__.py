"""The lane: plain requests about messages, taken as bytes and done together.

Whatever the lane is not sure of goes to aiohttp, with the very bytes that came: see `lane.py`.
"""
