//! What a peer may demand of this process: connections, messages in a time, and memory.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Shutdown, TcpStream};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Bytes of memory that a queued message takes in addition to its own, at most; a flood of empty ones counts too.
pub const QUEUED_OVERHEAD: usize = 256;

/// Connections that have not identified themselves.
const MAX_STRANGERS: usize = 64;
/// Those of one address. Sites behind one proxy have one address.
const MAX_OF_ADDRESS: usize = 16;

struct Stranger {
    number: u64,
    address: IpAddr,
    socket: TcpStream,
}

#[derive(Default)]
struct Table {
    /// Those that have come so far.
    count: u64,
    /// The oldest first.
    strangers: VecDeque<Stranger>,
}

/// The connections that have not identified themselves. When there are too many, the oldest is closed: one that identifies
/// itself does so within a second, and no number of silent ones keeps a site out.
#[derive(Default)]
pub struct Strangers(Mutex<Table>);

impl Strangers {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection, in place of the oldest one of its address or of all if there are too many. Returns its number.
    ///
    /// # Errors
    /// If the system has no file descriptor left.
    pub fn enter(&self, socket: &TcpStream, address: IpAddr) -> io::Result<u64> {
        let socket = socket.try_clone()?;
        let mut table = self.lock();
        let of_address = |stranger: &Stranger| stranger.address == address;
        let evicted = if table.strangers.iter().filter(|stranger| of_address(stranger)).count() >= MAX_OF_ADDRESS {
            table.strangers.iter().position(of_address)
        } else {
            (table.strangers.len() >= MAX_STRANGERS).then_some(0)
        };
        if let Some(oldest) = evicted.and_then(|at| table.strangers.remove(at)) {
            // The thread that serves it notices.
            let _ = oldest.socket.shutdown(Shutdown::Both);
        }
        table.count += 1;
        let number = table.count;
        table.strangers.push_back(Stranger { number, address, socket });
        Ok(number)
    }

    /// Removes a connection that has ended or identified itself.
    pub fn leave(&self, number: u64) {
        self.lock().strangers.retain(|stranger| stranger.number != number);
    }
}

/// How often something is allowed: how many at once, and how many more in each second.
#[derive(Debug, Clone, Copy)]
pub struct Allowance {
    most: f64,
    per_second: f64,
    left: f64,
    at: Instant,
}

impl Allowance {
    /// Nothing is used up yet.
    pub fn new((most, per_second): (f64, f64)) -> Allowance {
        Allowance { most, per_second, left: most, at: Instant::now() }
    }

    /// Uses up one, if one is left.
    pub fn take(&mut self) -> bool {
        let now = Instant::now();
        self.left = self.most.min(self.left + self.per_second * (now - self.at).as_secs_f64());
        self.at = now;
        let allowed = self.left >= 1.0;
        self.left -= f64::from(u8::from(allowed));
        allowed
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::net::TcpListener;
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_oldest_of_an_address_makes_room_and_then_the_oldest_of_all() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let pair = || {
            let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            near.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
            (near, listener.accept().unwrap().0)
        };
        let is_closed = |near: &TcpStream| matches!((&*near).read(&mut [0]), Ok(0));
        let strangers = Strangers::default();
        let address = |n: usize| IpAddr::from([10, 0, 0, n as u8]);
        let (first, far) = pair();
        let number = strangers.enter(&far, address(0)).unwrap();
        let mut flood: Vec<TcpStream> = Vec::new();
        for _ in 0..3 * MAX_OF_ADDRESS {
            let (near, far) = pair();
            strangers.enter(&far, address(1)).unwrap();
            flood.push(near);
        }
        assert!(!is_closed(&first), "the flood of one address closes those of this address");
        assert_eq!(flood.iter().filter(|near| !is_closed(near)).count(), MAX_OF_ADDRESS);
        assert!(!is_closed(&flood[flood.len() - 1]));
        // From many addresses.
        for n in 0..MAX_STRANGERS - MAX_OF_ADDRESS {
            let (near, far) = pair();
            strangers.enter(&far, address(2 + n)).unwrap();
            flood.push(near);
        }
        assert!(is_closed(&first), "it was the oldest");
        strangers.leave(number);
        assert_eq!(strangers.lock().strangers.len(), MAX_STRANGERS);
    }

    #[test]
    fn an_allowance_is_used_up_and_comes_back() {
        let mut allowance = Allowance::new((3.0, 50.0));
        assert_eq!((0..10).filter(|_| allowance.take()).count(), 3);
        std::thread::sleep(Duration::from_millis(30));
        assert!(allowance.take());
    }
}
