"""Driver views. A view is a folder with the files of a driver, and containers mount the whole folder.

A plan (``model.view.ViewPlan``) lists the content of a view.

- ``publishing``: ``publish_view`` makes the view of a plan. ``find_view`` finds an existing view;
- ``pruning``: ``prune`` removes unused views;
- ``sources``: the host's files that a view may contain, and the name of the view;
- ``builder``: add files to a view as hard links, reflinks or copies;
- ``folder``: the directory of the views, the content of a view, and the boot of the last pruning.
"""
