//! With generated keys, and with the examples of RFC 7515 and RFC 7520.

use proptest::prelude::*;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair,
    EcdsaSigningAlgorithm, KeyPair as _,
};
use serde_json::json;

use super::*;

/// A key of an API server that signs tokens.
pub(in crate::auth) struct Signer {
    pair: EcdsaKeyPair,
    alg: &'static str,
    crv: &'static str,
}

fn encode(bytes: impl AsRef<[u8]>) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

fn bearer(text: &str) -> Token {
    Token::of_header(&format!("Bearer {text}")).unwrap()
}

fn keys(jwks: &[Value]) -> Keys {
    Keys::read(&json!({ "keys": jwks }).to_string()).unwrap()
}

impl Signer {
    pub(in crate::auth) fn new() -> Self {
        Self::on(&ECDSA_P256_SHA256_FIXED_SIGNING, "ES256", "P-256")
    }

    fn on(algorithm: &'static EcdsaSigningAlgorithm, alg: &'static str, crv: &'static str) -> Self {
        let random = SystemRandom::new();
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &random).unwrap();
        Self { pair, alg, crv }
    }

    /// The public key under an id, as an API server publishes it.
    pub(in crate::auth) fn jwk(&self, kid: &str) -> Value {
        let point = self.pair.public_key().as_ref();
        let (x, y) = point[1..].split_at((point.len() - 1) / 2);
        json!({
            "use": "sig", "kty": "EC", "kid": kid, "crv": self.crv, "alg": self.alg,
            "x": encode(x), "y": encode(y),
        })
    }

    fn sign(&self, header: &Value, payload: &Value) -> String {
        let signed = format!(
            "{}.{}",
            encode(header.to_string()),
            encode(payload.to_string())
        );
        let signature = self.pair.sign(&SystemRandom::new(), signed.as_bytes());
        format!("{signed}.{}", encode(signature.unwrap()))
    }

    /// A token that names the key with this id.
    pub(in crate::auth) fn token(&self, kid: &str, payload: &Value) -> Token {
        bearer(&self.sign(&json!({"alg": self.alg, "kid": kid}), payload))
    }
}

#[test]
fn only_the_key_that_a_token_names_can_have_made_it() {
    let curves = [
        (&ECDSA_P256_SHA256_FIXED_SIGNING, "ES256", "P-256"),
        (&ECDSA_P384_SHA384_FIXED_SIGNING, "ES384", "P-384"),
    ];
    let payload = json!({"sub": "a"});
    for (algorithm, alg, crv) in curves {
        let signer = Signer::on(algorithm, alg, crv);
        let other = Signer::on(algorithm, alg, crv);
        let known = keys(&[signer.jwk("one")]);
        let check = |token: &Token| known.check(token);
        assert_eq!(check(&signer.token("one", &payload)), Signature::Genuine);
        assert_eq!(check(&other.token("one", &payload)), Signature::Forged);
        let unknown = signer.token("two", &payload);
        assert_eq!(check(&unknown), Signature::Undecided);
        for weaker in ["none", "HS256", "RS256", ""] {
            let token = signer.sign(&json!({"alg": weaker, "kid": "one"}), &payload);
            assert_eq!(check(&bearer(&token)), Signature::Forged, "{weaker:?}");
        }
        let whole = signer.token("one", &payload);
        let (signed, _) = whole.as_str().rsplit_once('.').unwrap();
        for signature in ["", "AA", "!", "="] {
            let token = bearer(&format!("{signed}.{signature}"));
            assert_eq!(check(&token), Signature::Forged, "{signature:?}");
        }
    }
}

/// RFC 7520, section 4.1.
#[test]
fn a_token_of_an_rsa_key_is_genuine() {
    let key = json!({
        "kty": "RSA", "kid": "bilbo.baggins@hobbiton.example", "use": "sig", "e": "AQAB",
        "n": "n4EPtAOCc9AlkeQHPzHStgAbgs7bTZLwUBZdR8_KuKPEHLd4rHVTeT-O-XV2jRojdNhxJWTDvNd7nqQ0VEiZQHz_AJmSCpMa\
            JMRBSFKrKb2wqVwGU_NsYOYL-QtiWN2lbzcEe6XC0dApr5ydQLrHqkHHig3RBordaZ6Aj-oBHqFEHYpPe7Tpe-OfVfHd1E6cS6M1\
            FZcD1NNLYD5lFHpPI9bTwJlsde3uhGqC0ZCuEHg8lhzwOHrtIQbS0FVbb9k3-tVTU4fg_3L_vniUFAKwuCLqKnS2BYwdq_mzSnbL\
            Y7h_qixoR7jig3__kRhuaxwUkRz5iaiQkqgc5gHdrNP5zw",
    });
    let header = encode(r#"{"alg":"RS256","kid":"bilbo.baggins@hobbiton.example"}"#);
    let payload = encode(
        "It\u{2019}s a dangerous business, Frodo, going out your door. You step onto the road, and if you don't keep \
         your feet, there\u{2019}s no knowing where you might be swept off to.",
    );
    let signature = "MRjdkly7_-oTPTS3AXP41iQIGKa80A0ZmTuV5MEaHoxnW2e5CZ5NlKtainoFmKZopdHM1O2U4mwzJdQx996ivp83xug\
        lII7PNDi84wnB-BDkoBwA78185hX-Es4JIwmDLJK3lfWRa-XtL0RnltuYv746iYTh_qHRD68BNt1uSNCrUCTJDt5aAE6x8wW1Kt9eRo4\
        QPocSadnHXFxnt8Is9UzpERV0ePPQdLuW3IS_de3xyIrDaLGdjluPxUAhb6L2aXic1U12podGU0KLUQSE_oI-ZnmKJ3F4uOZDnd6QZWJ\
        ushZ41Axf_fcIe8u9ipH84ogoree7vjbU5y18kDquDg";
    let known = keys(&[key]);
    let check = |payload: &str| known.check(&bearer(&format!("{header}.{payload}.{signature}")));
    assert_eq!(check(&payload), Signature::Genuine);
    assert_eq!(check(&encode("Stay at home.")), Signature::Forged);
}

/// RFC 7515, appendix A.3.
#[test]
fn the_example_of_an_elliptic_curve_is_genuine() {
    let jwk = Jwk {
        kty: "EC".into(),
        crv: "P-256".into(),
        x: "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU".into(),
        y: "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0".into(),
        ..Jwk::default()
    };
    let signed = "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvb\
        S9pc19yb290Ijp0cnVlfQ";
    let signature = decode(
        "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q",
    );
    let key = Key::read(&jwk).unwrap();
    assert!(key.made(signed.as_bytes(), &signature.unwrap()));
    assert!(!key.made(b"other", b"other"));
}

#[test]
fn keys_that_cannot_be_used_are_left_out_and_hide_no_other() {
    let signer = Signer::new();
    let rsa = |n: &str, e: &str| json!({"kty": "RSA", "kid": "rsa", "n": n, "e": e});
    let long = encode([0xff; 256]);
    let mut strange = signer.jwk("strange");
    strange["x"] = json!(encode([1; 31]));
    let mut other_use = signer.jwk("other");
    other_use["alg"] = json!("ECDH-ES");
    let unusable = [
        json!({"kty": "AKP", "kid": "new", "alg": "ML-DSA-44", "pub": "AA"}),
        json!({"kty": "EC", "kid": "large", "crv": "P-521", "x": "AA", "y": "AA"}),
        json!({"kty": 7, "kid": ["a"]}),
        json!("text"),
        rsa(&encode([0xff; 128]), "AQAB"),
        rsa(&encode([0xff; 1025]), "AQAB"),
        rsa(&encode([0xfe; 256]), "AQAB"),
        rsa(&long, ""),
        rsa(&long, "AQ"),
        rsa(&long, "AA"),
        rsa(&long, &encode([1; 5])),
        rsa("!", "AQAB"),
        signer.jwk(""),
        strange,
        other_use,
    ];
    for key in unusable {
        let known = keys(&[key.clone(), signer.jwk("one")]);
        assert_eq!(known, keys(&[signer.jwk("one")]), "{key}");
    }
    assert_eq!(keys(&[rsa(&long, "AQAB")]).len(), 1);
    let twice = keys(&[signer.jwk("one"), Signer::new().jwk("one")]);
    assert!(twice.is_empty(), "which of them made a token is unknown");
    assert!(Keys::read("{}").is_err());
    assert!(Keys::read("no").is_err());
}

proptest! {
    /// I-3: no changed character leaves a token genuine, and no text causes a panic.
    #[test]
    fn a_changed_token_is_never_genuine(
        at in any::<prop::sample::Index>(),
        by in "[A-Za-z0-9_.-]",
        noise in "\\PC{0,200}",
    ) {
        let signer = Signer::new();
        let known = keys(&[signer.jwk("one")]);
        let whole = signer.token("one", &json!({"sub": "a"}));
        let at = at.index(whole.as_str().len());
        let mut changed = whole.as_str().to_owned();
        changed.replace_range(at..=at, &by);
        prop_assume!(changed != whole.as_str());
        prop_assert_ne!(known.check(&bearer(&changed)), Signature::Genuine);
        if let Some(token) = Token::of_header(&format!("Bearer {noise}")) {
            prop_assert_ne!(known.check(&token), Signature::Genuine);
        }
        // Neither does any text as a key set.
        drop(Keys::read(&noise));
    }
}
