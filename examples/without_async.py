"""A client without an event loop and without the task's code: submit by name, read, promote, cancel.

python3 -m examples.without_async
"""

from sublet import Options, SyncClient, WrongState


def main() -> None:
    """Make calls as a script, a notebook or a synchronous web handler would."""
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
