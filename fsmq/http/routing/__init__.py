"""Requests, routes and answers: finds a request's handler, reads its body, builds its answer."""
