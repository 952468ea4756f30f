"""Load with an honest clock: schedules, a paced sender, exact percentiles."""
