"""TLS: the certificate and its key, which can be replaced while connections are open."""

import ssl
from pathlib import Path

from fsmq.http.guard.keys import KeysError, read_guarded

# TLS 1.3 has suites of its own, all of them secure.
_CIPHERS_OF_1_2 = "ECDHE+AESGCM:ECDHE+CHACHA20"


class Certificate:
    """The files of a certificate and its key, and the context that is made of them."""

    def __init__(self, certificate: Path, key: Path) -> None:
        """Load the files. Raises KeysError as :meth:`reload`."""
        self._certificate, self._key = certificate, key
        self._context = self._load()

    def context(self) -> ssl.SSLContext:
        """The newest context that could be made, for new connections; others keep theirs."""
        return self._context

    def reload(self) -> None:
        """Load the files again.

        Raises:
            KeysError: they cannot be used; the message names the file. The old ones stay.
        """
        self._context = self._load()

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(_CIPHERS_OF_1_2)
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
        context.set_alpn_protocols(["http/1.1"])
        for file in (self._certificate, self._key):
            try:
                if file == self._key:
                    read_guarded(file)
                else:
                    file.read_bytes()
            except KeysError as error:
                raise KeysError(f"{file}: {error}") from None
            except OSError as error:
                raise KeysError(f"{file}: cannot be read: {error.strerror}") from None
        try:
            context.load_cert_chain(self._certificate, self._key, _no_password)
        except ssl.SSLError as error:
            raise KeysError(self._why(error)) from None
        return context

    def _why(self, error: ssl.SSLError) -> str:
        if error.reason == "KEY_VALUES_MISMATCH":
            return f"{self._key}: is not the key of the certificate in {self._certificate}"
        reason = (error.reason or "no PEM").lower().replace("_", " ")
        return (
            f"{self._certificate} and {self._key}: are not a certificate and its key, in PEM and"
            f" without a password ({reason})"
        )


def _no_password() -> str:
    # Without this OpenSSL would ask for a password on the terminal, and block the start.
    return ""
