"""Ports, and what a worker says on its own."""

import asyncio
import socket

import aiohttp


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def readiness(port: int) -> tuple[int, str]:
    """Return status and report of /readyz, once something listens."""
    async with asyncio.timeout(30), aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.get(f"http://127.0.0.1:{port}/readyz") as answer:
                    return answer.status, await answer.text()
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(0.1)


async def until_readyz(port: int, status: int, words: str = "") -> None:
    """Wait until /readyz answers so."""
    async with asyncio.timeout(90):
        while not ((said := await readiness(port))[0] == status and words in said[1]):
            await asyncio.sleep(0.05)
