"""What every program does around its work: start, log, notify systemd, supervise, end."""
