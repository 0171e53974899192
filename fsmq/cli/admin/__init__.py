"""Commands on a spool and its programs: up, doctor, fsck, bench, keys, settings."""
