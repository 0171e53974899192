"""Schedules: messages that are put at the moments of a crontab line, one for each moment.

They are the files of ``schedules/``. `crontab.py` computes the moments (with `cron_fields.py` and
`zone_clock.py`), `schedule_settings.py` defines the content of a file, and `putting.py` how any
number of movers put one message for each moment; start there.
"""
