"""The ids of jobs that report deaths."""


def hook_id(job_id: str, token: str, partition: int = 0) -> str:
    """As the protocol's reference defines it."""
    sums = []
    for factor, modulus in ((33, 4294967291), (257, 4294967279), (65599, 4294967231)):
        found = 0
        for byte in f"{job_id} {token}".encode():
            found = (found * factor + byte) % modulus
        sums.append(f"{found:08x}")
    return f"{partition}-dead-{''.join(sums)}"
