"""Who may do what, and how much: keys, rights, limits, admission, origins."""
