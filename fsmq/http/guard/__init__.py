"""Who gets in, and how much: keys, rights, limits, admission, origins."""
