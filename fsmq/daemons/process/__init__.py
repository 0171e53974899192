"""What every program does besides its work: start, log, notify systemd, supervise, end."""
