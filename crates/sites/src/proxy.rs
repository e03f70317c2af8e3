//! TCP connections to the hub, directly or through the proxy that `https_proxy` names (HTTP CONNECT).

use std::io::{Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

/// Maximum time to connect.
const CONNECT: Duration = Duration::from_secs(10);
/// Maximum length of a proxy's response.
const LONGEST: usize = 8 << 10;

/// `HOST:PORT`; an IPv6 address in brackets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    pub host: String,
    pub port: u16,
}

impl std::str::FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "must be HOST:PORT, as in hub.example.org:443".to_string();
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = bare.unwrap_or(host);
        if host.is_empty() || bare.is_none() && host.contains([':', '/']) {
            return Err(wrong());
        }
        Ok(Address { host: host.to_string(), port: port.parse().map_err(|_| wrong())? })
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// A proxy, and the credentials for it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Proxy {
    address: Address,
    /// `user:password` in base64.
    credentials: Option<String>,
}

/// Connects to the hub.
///
/// # Errors
/// The reason why there is no connection.
pub fn connect(hub: &Address) -> Result<TcpStream, String> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let proxy = variable("https_proxy").or_else(|| variable("HTTPS_PROXY"));
    let exempt = variable("no_proxy").or_else(|| variable("NO_PROXY")).unwrap_or_default();
    match proxy.filter(|_| !is_exempt(&hub.host, &exempt)) {
        None => open(hub),
        Some(text) => {
            let proxy = parse(&text)?;
            let socket = open(&proxy.address).map_err(|e| format!("the proxy {}: {e}", proxy.address))?;
            tunnel(socket, hub, &proxy).map_err(|e| format!("the proxy {}: {e}", proxy.address))
        }
    }
}

fn open(to: &Address) -> Result<TcpStream, String> {
    let found =
        (to.host.as_str(), to.port).to_socket_addrs().map_err(|e| format!("{}: unknown host ({e})", to.host))?;
    let mut last = format!("{}: unknown host", to.host);
    for address in found {
        match TcpStream::connect_timeout(&address, CONNECT) {
            Ok(socket) => return Ok(socket),
            Err(e) => last = format!("no connection to {address} ({e})"),
        }
    }
    Err(last)
}

/// Parses `http://[user:password@]host[:port]`, the scheme optional.
fn parse(text: &str) -> Result<Proxy, String> {
    // The text may hold a password.
    let wrong = || "https_proxy: must be http://HOST:PORT, or http://USER:PASSWORD@HOST:PORT".to_string();
    if text.starts_with("https://") || text.starts_with("socks") {
        return Err(wrong());
    }
    let rest = text.strip_prefix("http://").unwrap_or(text);
    let rest = rest.split('/').next().unwrap_or(rest);
    let (credentials, place) = match rest.rsplit_once('@') {
        Some((credentials, place)) => (Some(base64(&percent(credentials))), place),
        None => (None, rest),
    };
    let has_port = place.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let place = if has_port { place.to_string() } else { format!("{place}:80") };
    Ok(Proxy { address: place.parse().map_err(|_| wrong())?, credentials })
}

/// Whether `no_proxy` lists the host or a domain that it is in.
fn is_exempt(host: &str, list: &str) -> bool {
    list.split(',').map(str::trim).filter(|entry| !entry.is_empty()).any(|entry| {
        let entry = entry.trim_start_matches('.');
        entry == "*" || host == entry || host.ends_with(&format!(".{entry}"))
    })
}

/// The bytes of a text with percent-encoding (%XX).
fn percent(text: &str) -> Vec<u8> {
    let (bytes, mut at, mut out) = (text.as_bytes(), 0, Vec::new());
    while at < bytes.len() {
        let code = (bytes[at] == b'%').then(|| text.get(at + 1..at + 3)).flatten();
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    out
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for part in bytes.chunks(3) {
        let word = part.iter().fold(0u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - part.len()));
        for digit in 0..4 {
            let index = word >> (18 - 6 * digit) & 63;
            out.push(if digit <= part.len() { DIGITS[index as usize] as char } else { '=' });
        }
    }
    out
}

/// Requests a connection to the hub from the proxy.
fn tunnel(mut socket: TcpStream, hub: &Address, proxy: &Proxy) -> Result<TcpStream, String> {
    let broken = |e: std::io::Error| format!("no answer ({e})");
    socket.set_read_timeout(Some(CONNECT)).map_err(broken)?;
    socket.set_write_timeout(Some(CONNECT)).map_err(broken)?;
    let login = proxy.credentials.as_ref().map_or_else(String::new, |c| format!("Proxy-Authorization: Basic {c}\r\n"));
    let request = format!("CONNECT {hub} HTTP/1.1\r\nHost: {hub}\r\n{login}\r\n");
    socket.write_all(request.as_bytes()).map_err(broken)?;
    // Byte by byte: the bytes after the response are the hub's.
    let (mut answer, mut byte) = (Vec::new(), [0]);
    while !answer.ends_with(b"\r\n\r\n") {
        if answer.len() > LONGEST || socket.read(&mut byte).map_err(broken)? == 0 {
            return Err("closed the connection; is it an HTTP proxy?".into());
        }
        answer.push(byte[0]);
    }
    let first = String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_string();
    match first.split_whitespace().nth(1) {
        Some(code) if code.starts_with('2') => Ok(socket),
        _ => Err(format!("does not connect to {hub} ({})", first.chars().take(100).collect::<String>())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_port() {
        let address = |text: &str| text.parse::<Address>();
        assert_eq!(address("hub:443").unwrap(), Address { host: "hub".into(), port: 443 });
        assert_eq!(address("[::1]:7").unwrap().to_string(), "[::1]:7");
        for wrong in ["hub", ":443", "hub:x", "::1:7", "https://hub:443"] {
            assert!(address(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn proxies_are_read_as_other_programs_do() {
        let proxy = parse("http://me:p%40ss@proxy.example:3128/").unwrap();
        assert_eq!(proxy.address.to_string(), "proxy.example:3128");
        assert_eq!(proxy.credentials.as_deref(), Some("bWU6cEBzcw=="));
        assert_eq!(parse("proxy").unwrap().address.port, 80);
        assert!(parse("socks5://proxy:1080").is_err());
        assert!(is_exempt("hub.example.org", "localhost, .example.org") && !is_exempt("badexample.org", "example.org"));
    }
}
