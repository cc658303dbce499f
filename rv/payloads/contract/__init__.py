"""What rv and its payloads agree on. Standard library only, relative imports only.

`rv` imports these modules as `rv.payloads.contract.…`; the payload scripts, which are copied to the
cluster without the rest of rv, import the same files as `contract.…`. Python 3.10 must read them.
"""
