"""Workers on a server: how they claim and settle messages over HTTP."""
