"""From the fields of a request to a stored submission, the same for all who send one.

Routes, pages, campaigns and checks take the same steps, in this order, each a module:

1. `parse` reads the fields as a job description, with their defaults; `repeat` takes them from an
   earlier benchmark, with changes.
2. `check` refuses what is wrong with the description itself (`run_times`: with its bounds of time).
3. `offer` refuses what none of the lab's boards can run; its mistakes are reported with those of
   `check`, so that all are known at once.
4. `store` looks up what the account can bear (`account`) and the files (`files`), and writes the
   submission, once for each idempotency key (`idempotency`); `group_commit` writes for many
   requests in one transaction. `dry_run` answers what would happen instead.

`campaign` takes all combinations of a matrix through the steps, and `versions` both versions of a
check. Nothing here knows HTTP: the routes read requests and answer them.
"""
