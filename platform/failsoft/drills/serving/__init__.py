"""Drills of anybody's Serve app: paced requests, faults from outside and inside, an oracle on the answers."""
