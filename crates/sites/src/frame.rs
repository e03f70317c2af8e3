//! The wire format between a site and the hub: frames of a length, a kind and a body. Bodies of messages between two
//! sites are sealed; the hub reads the rest.

use serde::{Deserialize, Serialize};

/// The version of these frames and of their sealed contents.
pub const PROTOCOL: u32 = 2;

/// Maximum number of message bytes in one frame, so that a slow line shows activity.
pub const PIECE: usize = 128 << 10;

/// Maximum length of a body.
const LONGEST: usize = 1 << 20;

const CONTROL: u8 = 0;
const DATA: u8 = 1;
const ACK: u8 = 2;

/// One frame. `peer` is the receiver in a frame to the hub, and the sender in a frame from it.
#[derive(Debug, Clone, PartialEq)]
pub enum Frame {
    Control(Control),
    /// A sealed piece of a message, numbered by sender and receiver from 0.
    Data {
        peer: u16,
        number: u64,
        sealed: Vec<u8>,
    },
    /// All pieces below `below` have arrived.
    Ack {
        peer: u16,
        below: u64,
    },
}

/// The first frame of a site. Hub and site may have different versions, so these fields never change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    pub protocol: u32,
    pub version: String,
    /// The requested name; by default the one of its certificate.
    pub site: Option<String>,
    /// A random number that distinguishes this process from other processes of the same site.
    pub instance: String,
    /// The run to which the site reconnects, if it has lost its connection.
    pub run: Option<String>,
}

/// The key of a site for one run, signed with the key of its certificate. Bytes are hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteKey {
    pub site: String,
    pub instance: String,
    /// The certificate, and the intermediate ones up to the CA.
    pub chain: Vec<String>,
    /// The public X25519 key.
    pub key: String,
    pub scheme: u16,
    pub signature: String,
}

/// Frames that the hub itself reads and writes. Their names on the wire belong to the version of the protocol.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Control {
    Hello(Hello),
    /// The run, its sites in the order of ranks, and which of them the receiver is.
    Welcome {
        run: String,
        sites: Vec<String>,
        rank: usize,
    },
    /// The hub closes the connection; with the reason.
    Refused(String),
    /// The same, but another process of the site may join later.
    #[serde(rename = "NotNow")]
    RetryLater(String),
    Key(Box<SiteKey>),
    /// The sites that have not joined yet.
    WaitingFor(Vec<String>),
    /// All sites have joined; their keys, by rank.
    Roster(Vec<SiteKey>),
    /// A site is connected; all that it has not acknowledged must be sent again.
    Present(usize),
    /// A site is disconnected, and may remain so for this number of seconds.
    #[serde(rename = "Away")]
    Disconnected(usize, u64),
    /// A site was disconnected for too long or ended with an error, so the run ends.
    #[serde(rename = "Lost")]
    RunLost(usize, String),
    /// The sender continues without lost sites, as long as this number remains.
    #[serde(rename = "GoesOn")]
    ContinueWithout(usize),
    /// A site is lost, with the reason; the others continue without it.
    #[serde(rename = "Gone")]
    SiteLost(usize, String),
    /// The site has finished with this exit code.
    Leave(i32),
    /// A site has finished regularly.
    Left(usize),
    /// The site ends with an error that the others do not know about.
    Abort(i32),
    /// Sent when there is nothing else to send; the other side answers with a pong.
    Ping,
    Pong,
}

/// Whether a site may have this name: it is a valid name for a certificate.
pub fn valid_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    (1..=63).contains(&name.len())
        && name.chars().all(fits)
        && !name.starts_with(['-', '.'])
        && !name.ends_with(['-', '.'])
}

/// Text from the other side as it is shown: limited in length, and without control characters.
pub fn printable(text: &str) -> String {
    fednmf_base::printable::printable(&text.chars().take(1000).collect::<String>())
}

impl Frame {
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; 5];
        match self {
            Frame::Control(control) => {
                bytes[4] = CONTROL;
                bytes.extend(serde_json::to_vec(control).expect("plain data"));
            }
            Frame::Data { peer, number, sealed } => {
                bytes[4] = DATA;
                bytes.extend(peer.to_le_bytes());
                bytes.extend(number.to_le_bytes());
                bytes.extend(sealed);
            }
            Frame::Ack { peer, below } => {
                bytes[4] = ACK;
                bytes.extend(peer.to_le_bytes());
                bytes.extend(below.to_le_bytes());
            }
        }
        let length = u32::try_from(bytes.len() - 5).expect("pieces are short");
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        bytes
    }

    fn decode(kind: u8, body: &[u8]) -> Option<Frame> {
        let numbers = || {
            let (peer, rest) = body.split_first_chunk::<2>()?;
            let (number, rest) = rest.split_first_chunk::<8>()?;
            Some((u16::from_le_bytes(*peer), u64::from_le_bytes(*number), rest))
        };
        match kind {
            CONTROL => serde_json::from_slice(body).ok().map(Frame::Control),
            DATA => numbers().map(|(peer, number, sealed)| Frame::Data { peer, number, sealed: sealed.to_vec() }),
            ACK => numbers().filter(|(.., rest)| rest.is_empty()).map(|(peer, below, _)| Frame::Ack { peer, below }),
            _ => None,
        }
    }
}

/// Assembles frames from received bytes.
#[derive(Debug, Default)]
pub struct Decoder {
    bytes: Vec<u8>,
    /// Where the next frame begins.
    at: usize,
}

impl Decoder {
    /// The buffer to which received bytes are appended.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        if self.at > 0 {
            self.bytes.drain(..self.at);
            self.at = 0;
        }
        &mut self.bytes
    }

    /// The next complete frame.
    ///
    /// # Errors
    /// If the bytes are not a frame.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, String> {
        let rest = &self.bytes[self.at..];
        let Some((head, rest)) = rest.split_first_chunk::<5>() else { return Ok(None) };
        let [a, b, c, d, kind] = *head;
        let length = u32::from_le_bytes([a, b, c, d]) as usize;
        if length > LONGEST {
            return Err("the other side speaks another protocol (a frame is too long)".into());
        }
        let Some(body) = rest.get(..length) else { return Ok(None) };
        let frame = Frame::decode(kind, body).ok_or("the other side speaks another protocol (an unknown frame)")?;
        self.at += 5 + length;
        Ok(Some(frame))
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// The only frame in these bytes.
    fn decoded(bytes: &[u8]) -> Option<Frame> {
        let mut decoder = Decoder::default();
        decoder.buffer().extend(bytes);
        let frame = decoder.next_frame().ok()?;
        frame.filter(|_| decoder.next_frame() == Ok(None))
    }

    #[test]
    fn names_of_sites_are_names_of_certificates() {
        assert!(["a", "site-1", "hospital.example.org"].iter().all(|name| valid_name(name)));
        assert!(["", "A", "a b", "-a", "a_b", "*.org", "a."].iter().all(|name| !valid_name(name)));
    }

    #[test]
    fn frames_survive_any_cut() {
        let frames = [
            Frame::Control(Control::Disconnected(3, 60)),
            Frame::Data { peer: 2, number: 7, sealed: vec![1, 2, 3] },
            Frame::Ack { peer: 1, below: 9 },
            Frame::Data { peer: 0, number: u64::MAX, sealed: Vec::new() },
        ];
        let bytes: Vec<u8> = frames.iter().flat_map(Frame::encode).collect();
        for step in [1, 2, 5, 7, bytes.len()] {
            let (mut decoder, mut found) = (Decoder::default(), Vec::new());
            for part in bytes.chunks(step) {
                decoder.buffer().extend(part);
                while let Some(frame) = decoder.next_frame().unwrap() {
                    found.push(frame);
                }
            }
            assert_eq!(found, frames);
        }
    }

    proptest! {
        /// Arbitrary bytes from a connection cause no panic and use no memory beyond the received bytes, and a decoded frame
        /// can be encoded and decoded again.
        #[test]
        fn any_bytes_are_frames_or_refused(
            bytes in vec(any::<u8>(), 0..200),
            kind in 0u8..4,
            body in vec(any::<u8>(), 0..60),
            step in 1usize..70,
        ) {
            let framed = [&(body.len() as u32).to_le_bytes()[..], &[kind], &body, &bytes].concat();
            let mut decoder = Decoder::default();
            'connection: for part in framed.chunks(step) {
                decoder.buffer().extend(part);
                loop {
                    match decoder.next_frame() {
                        Ok(Some(frame)) => prop_assert_eq!(decoded(&frame.encode()), Some(frame)),
                        Ok(None) => break,
                        Err(_) => break 'connection,
                    }
                }
                prop_assert!(decoder.buffer().len() <= framed.len());
            }
        }

        /// Valid frames with changed, missing and additional bytes: refused, or frames that can be encoded again.
        #[test]
        fn changed_frames_are_frames_or_refused(
            number: u64,
            sealed in vec(any::<u8>(), 0..40),
            text in ".{0,20}",
            changes in vec((any::<prop::sample::Index>(), any::<u8>(), 0u8..3), 1..6),
        ) {
            let frames = [
                Frame::Data { peer: 1, number, sealed },
                Frame::Ack { peer: 1, below: number },
                Frame::Control(Control::SiteLost(1, text.clone())),
                Frame::Control(Control::Welcome { run: text.clone(), sites: vec![text], rank: 0 }),
            ];
            let mut bytes: Vec<u8> = frames.iter().flat_map(Frame::encode).collect();
            for (at, byte, how) in changes {
                let at = at.index(bytes.len());
                match how {
                    0 => bytes[at] ^= byte,
                    1 => bytes.insert(at, byte),
                    _ => drop(bytes.remove(at)),
                }
            }
            let mut decoder = Decoder::default();
            decoder.buffer().extend(&bytes);
            while let Ok(Some(frame)) = decoder.next_frame() {
                prop_assert_eq!(decoded(&frame.encode()), Some(frame));
            }
            prop_assert!(decoder.buffer().len() <= bytes.len());
        }

        #[test]
        fn frames_come_back_from_their_bytes(peer: u16, number: u64, sealed in vec(any::<u8>(), 0..300), text: String) {
            for frame in [
                Frame::Data { peer, number, sealed },
                Frame::Ack { peer, below: number },
                Frame::Control(Control::RunLost(peer.into(), text.clone())),
                Frame::Control(Control::WaitingFor(vec![text])),
            ] {
                prop_assert_eq!(decoded(&frame.encode()), Some(frame));
            }
        }
    }

    #[test]
    fn control_frames_keep_their_names_on_the_wire() {
        for (control, text) in [
            (Control::RetryLater("why".into()), r#"{"NotNow":"why"}"#),
            (Control::Disconnected(3, 60), r#"{"Away":[3,60]}"#),
            (Control::RunLost(1, "why".into()), r#"{"Lost":[1,"why"]}"#),
            (Control::ContinueWithout(2), r#"{"GoesOn":2}"#),
            (Control::SiteLost(1, "why".into()), r#"{"Gone":[1,"why"]}"#),
        ] {
            assert_eq!(serde_json::to_string(&control).unwrap(), text);
        }
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        for wrong in [&b"GET / HTTP/1.1"[..], &[1, 0, 0, 0, 9, 0], &[1, 0, 0, 0, 0, b'x'], &[1, 0, 0, 0, 2, 0]] {
            let mut decoder = Decoder::default();
            decoder.buffer().extend(wrong);
            assert!(decoder.next_frame().is_err(), "{wrong:?}");
        }
    }
}
