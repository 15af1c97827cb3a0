"""The embedded cluster: runs jobs as child processes of this one."""
