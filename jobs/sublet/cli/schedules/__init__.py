"""Commands on schedules: schedules, tick."""
