"""The report: a verified release or model as one page that a person can read, check and sign.

Order of the modules: ``measurements`` (files that stand beside a release), ``words``, ``example`` and
``loading`` (parts of the facts), ``checklist`` and ``deployment`` (the facts in forms that others ask
for), ``facts`` (all of it as plain data); then ``style``, ``figures``, ``blocks``, the sections
``protection`` and ``background``, and ``page``: the data as HTML.
"""
