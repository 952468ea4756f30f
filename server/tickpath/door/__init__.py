"""The Open Inference Protocol door: a process that takes v2 REST and v2 gRPC, and asks the core as a client does.

    requests ══ HTTP, gRPC ══> door ══ one session ══> core

Rules
- The core knows no HTTP. To it the door is one client among others, with a client's limits: as many requests in flight
  as `in_flight_max`, and its turns. Whatever is done to the door, that is all the core sees of it.
- What is refused is refused in the core's or the client's own words, under the status that fits (statuses.py).
- Both sides share what they mean (upstream.py, inference.py, describe.py, tally.py); rest.py and rpc.py only speak.
"""
