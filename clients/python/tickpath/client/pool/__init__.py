"""Several servers of the same models, asked as one: `Pool` blocks, `AsyncPool` awaits.

options.py     what a user sets: hedging, health
servers.py     pure: what is known of each server, and which is asked next
hedging.py     pure: when a second server is asked, and how often that may be
course.py      pure: one request's way over the servers; what is asked again and what is not
asking.py      one request, as each server's own handles and numbers have it
blocking.py    Pool, over blocking_lines.py: the sockets, and how they come and go
aio.py         AsyncPool, over aio_lines.py
"""
