"""What producers and operators hold: clients, handles of jobs, schedules."""
