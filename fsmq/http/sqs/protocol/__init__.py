"""Requests and answers on the wire: JSON and Query, the shapes of actions, signatures."""
