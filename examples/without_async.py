"""No event loop, and none of the tasks' code: submit by name, look, call off.

python3 -m examples.without_async
"""

from sublet import Options, SyncClient, WrongState


def main() -> None:
    """What a script, a notebook or a web handler without async may do."""
    with SyncClient() as client:
        later = client.submit(
            "report", {"year": 2026}, Options(queue="reports", delay=3600, key="report-2026")
        )
        again = client.submit(
            "report", {"year": 2026}, Options(queue="reports", delay=3600, key="report-2026")
        )
        print("the same job:", later.id == again.id, "- created:", later.created, again.created)
        print("now:", client.promote(later.id))
        for job in client.list_jobs(queue="reports").jobs:
            print(f"{job.task} is {job.state}, priority {job.priority}, arguments {job.payload}")
        print("called off:", client.cancel(later.id))
        try:
            client.cancel(later.id)
        except WrongState as error:
            print("twice is refused:", "is cancelled" in str(error))


if __name__ == "__main__":
    main()
