"""Schedules: messages that are put at the moments of a crontab line, one for each moment.

They are the files of ``schedules/``. `crontab.py` tells the moments (by `cron_fields.py` and
`zone_clock.py`), `schedule_settings.py` what a
file says, `putting.py` how any number of movers puts one message for each moment; start there.
"""
