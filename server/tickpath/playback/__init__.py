"""Playback: the requests of a recording, asked again of a server, and its answers compared with the recorded ones bit
for bit. `tickpath replay` is its command; docs/RECORDING.md says how."""
