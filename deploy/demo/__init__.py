"""The main job, shown: real networks, really run on emulated boards, through every real layer."""
