//! Signing by the Standard Webhooks specification: `v1,` and the base64 of the HMAC-SHA256 of `id.timestamp.body`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

const PREFIX: &str = "whsec_";
/// The lengths that the specification recommends.
const KEY_BYTES_MIN: usize = 24;
const KEY_BYTES_MAX: usize = 64;

/// A key that requests are signed with.
#[derive(Clone)]
pub(super) struct Key(Hmac<Sha256>);

/// A text that is no secret of a webhook; it is not shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "names no secret of a webhook: it must be whsec_ and the base64 of {KEY_BYTES_MIN} to {KEY_BYTES_MAX} random bytes, such as \
     the output of `echo whsec_$(openssl rand -base64 32)`"
)]
pub(super) struct InvalidSecret;

impl Key {
    pub(super) fn read(secret: &str) -> Result<Self, InvalidSecret> {
        let bytes = STANDARD.decode(secret.strip_prefix(PREFIX).ok_or(InvalidSecret)?).map_err(|_| InvalidSecret)?;
        if !(KEY_BYTES_MIN..=KEY_BYTES_MAX).contains(&bytes.len()) {
            return Err(InvalidSecret);
        }
        Hmac::new_from_slice(&bytes).map(Self).map_err(|_| InvalidSecret)
    }

    fn sign(&self, id: &str, timestamp: &str, body: &[u8]) -> String {
        let mut mac = self.0.clone();
        for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
            mac.update(part);
        }
        format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
    }
}

/// The value of `webhook-signature`: one signature for each key.
pub(super) fn signatures(keys: &[Key], id: &str, timestamp: &str, body: &[u8]) -> String {
    keys.iter().map(|key| key.sign(id, timestamp, body)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_the_one_that_an_independent_program_computes() {
        // By `printf '%s' 'msg_p5jXN8AQM9LWM0D4loKWxJek.1614265330.{"test": 2432232314}'` through
        // `openssl dgst -sha256 -mac HMAC -macopt hexkey:…`.
        let key = Key::read("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let signed = signatures(&[key], "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", br#"{"test": 2432232314}"#);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn what_is_no_secret_is_refused_and_not_shown() {
        for text in ["", "whsec_", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_c2hvcnQ=", "whsec_not base64 at all, is it? no"] {
            let error = Key::read(text).err().unwrap().to_string();
            assert!(error.contains("openssl rand") && (text.len() < 7 || !error.contains(&text[6..])), "{text}");
        }
    }
}
