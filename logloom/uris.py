"""URIs without credentials, for display and storage.

Here: `shown`, which removes them from a text; `chained`, for the causes of errors;
`is_local`, `path_of`, `without_query`, `host_of`.
Elsewhere: opening a URI whose credentials were removed (`with_access` in logloom.io.storage.filesystems).
"""

from __future__ import annotations

import re
import urllib.parse

_URI = re.compile(
    r"""(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<rest>(?:(?!::[A-Za-z][\w+.-]*://)[^\s'"<>`])+)"""
)
_USER = re.compile(r"[^/?#@]*@")
_QUERY = re.compile(r"\?([^#)\]]*)")
_WEB = ("http", "https")  # a single user name may be a token; elsewhere it identifies an account
# Of signed URLs (AWS, Google, Azure, CloudFront, ...), and what else is called like a credential.
_SECRET = re.compile(
    r"(?i)(?:x-(?:amz|goog|oss|cos|ms|obs)-.*|.*(?:signature|token|secret|passw|pwd|credential|auth|apikey|api_key|"
    r"accesskey|access_key|jwt|session).*|awsaccesskeyid|googleaccessid|key-pair-id|key|sig|hmac)"
)
_SIGNED = "expires policy se sp sv sr ss srt st spr sip si skoid sktid skt ske sks skv sdd saoid"
_WITH_SIGNATURE = frozenset(_SIGNED.split())


def is_local(uri: str) -> bool:
    """Return whether a URI is a path on this machine's file systems."""
    return "://" not in uri or uri.startswith(("file://", "local://"))


def path_of(uri: str) -> str:
    """Return the path of a local file: a path as it is, a URI without its scheme and percent-encoding."""
    scheme, mark, rest = uri.partition("://")
    if not mark or scheme not in ("file", "local"):
        return uri
    return urllib.parse.unquote(rest, errors="surrogateescape") if "%" in rest else rest


def without_query(uri: str) -> str:
    """Return a URI without its query; the name of a local file may have a question mark."""
    return uri if is_local(uri) else uri.split("?", 1)[0]


def host_of(uri: str) -> str:
    """Return the server of a URI, without credentials: http://host:port."""
    scheme, _, rest = uri.partition("://")
    return f"{scheme}://{rest.partition('/')[0].rpartition('@')[2]}"


def shown(text: str) -> str:
    """Remove user names, passwords, signatures and tokens from the URIs in a text.

    Other parts of a query are kept, as they may identify files. A URI without credentials is unchanged.
    """
    return _URI.sub(_without, text) if "://" in text else text


def _without(match: re.Match[str]) -> str:
    scheme, rest = match["scheme"], match["rest"]
    user = _USER.match(rest)
    if user is not None and (scheme.lower() in _WEB or ":" in user[0]):
        rest = rest[user.end() :]
    return f"{scheme}://{_QUERY.sub(_without_secrets, rest, count=1)}"


def _without_secrets(match: re.Match[str]) -> str:
    pairs = re.split(r"[&;]", match[1])
    names = [pair.partition("=")[0].replace("%2D", "-") for pair in pairs]
    secret = [_SECRET.fullmatch(name) is not None for name in names]
    if not any(secret):
        return match[0]
    kept = [
        pair
        for pair, name, hidden in zip(pairs, names, secret, strict=True)
        if not (hidden or name.lower() in _WITH_SIGNATURE)
    ]
    return f"?{'&'.join(kept)}" if kept else ""


def chained(error: BaseException) -> BaseException | None:
    """Return an error as the cause of another: None if its chain contains credentials."""
    link: BaseException | None = error
    while link is not None:
        if shown(text := f"{link} {link!r}") != text:
            return None
        link = link.__cause__ or link.__context__
    return error
