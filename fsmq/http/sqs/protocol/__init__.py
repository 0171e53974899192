"""Requests and answers on the wire: the JSON and Query protocols, shapes of actions, signatures."""
