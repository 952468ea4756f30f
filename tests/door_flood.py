"""`python -m tests.door_flood URL CONNECTIONS`: posts to a door as fast as it answers, a third of it nonsense, and
prints how many answers came once its stdin ends."""

import asyncio
import json
import os
import sys

BODY = json.dumps(
    {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [0.0, 1.0, 2.0, 3.0]}]}
).encode()


def posted(path: str, body: bytes) -> bytes:
    """A request as it travels."""
    return f"POST /{path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


REQUESTS = (
    posted("v2/models/float32/infer", BODY),
    posted("v2/models/nobody/infer", BODY),
    posted("v2/models/float32/infer", b'{"inputs": [1, 2, 3'),
)


async def ask(host: str, port: int, answered: list[int]) -> None:
    reader, writer = await asyncio.open_connection(host, port)
    while True:
        for request in REQUESTS:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
            await reader.readexactly(int(length.split(b":")[1]))
            answered[0] += 1


async def main() -> None:
    host, port = sys.argv[1].removeprefix("http://").split(":")
    answered = [0]
    asking = [asyncio.create_task(ask(host, int(port), answered)) for _ in range(int(sys.argv[2]))]
    await asyncio.to_thread(sys.stdin.read)
    for task in asking:
        task.cancel()
    sys.stdout.write(f"{answered[0]}\n")


if __name__ == "__main__":
    os.nice(10)
    asyncio.run(main())
