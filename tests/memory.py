"""The most memory that a process has had, as code for a process of its own.

Not `resource.getrusage`: a child's peak begins there with that of the process that started it, so that what is less is never seen.
"""

PEAK = "peak = lambda: next(int(row.split()[1]) for row in open('/proc/self/status') if row.startswith('VmHWM'))\n"  # KiB
