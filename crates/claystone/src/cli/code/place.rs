//! Paths from the command line, as places of parcels.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use claystone_env::Directory;
use claystone_host::HostDirectory;
use claystone_parcel::{Parcel, Place, find, find_all};

/// Where the chunk files are.
#[derive(Debug, clap::Args)]
pub struct Parts {
    /// A chunk file, the manifest, or a directory with them; several if they lie in several directories
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
}

impl Parts {
    /// Finds the parcel.
    ///
    /// # Errors
    /// There is none, several are meant, or its files contradict each other.
    pub fn find(&self) -> anyhow::Result<Parcel> {
        find(&self.places()?.0).map_err(super::exit)
    }

    /// Finds all parcels that are meant: those of the files that are named, or all in the directories.
    ///
    /// # Errors
    /// There is none, or the files of one contradict each other.
    pub fn find_all(&self) -> anyhow::Result<Vec<Parcel>> {
        find_all(&self.places()?.0).map_err(super::exit)
    }

    fn places(&self) -> anyhow::Result<(Vec<Place>, Directories)> {
        let mut directories = Directories::default();
        let places = self.paths.iter().map(|path| {
            let meta = path.metadata().with_context(|| path.display().to_string())?;
            if meta.is_dir() {
                return Ok(Place { directory: directories.at(path)?, file: None });
            }
            let (directory, name) = split(path)?;
            Ok(Place { directory: directories.at(&directory)?, file: Some(name) })
        });
        Ok((places.collect::<anyhow::Result<_>>()?, directories))
    }

    /// Where new files go: `out`, which is made, or else the directory of the first path.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn directory_of_new(&self, out: Option<&Path>) -> anyhow::Result<Arc<dyn Directory>> {
        let (places, mut directories) = self.places()?;
        let Some(out) = out else { return Ok(Arc::clone(&places[0].directory)) };
        HostDirectory::make(out).with_context(|| out.display().to_string())?;
        directories.at(out)
    }

    /// The paths as a person typed them.
    pub fn typed(&self) -> String {
        let paths: Vec<String> = self.paths.iter().map(|path| path.display().to_string()).collect();
        paths.join(" ")
    }
}

/// Directories that were named: one that is named once more, by another spelling or a link, is the one of before.
#[derive(Default)]
struct Directories(Vec<((u64, u64), Arc<dyn Directory>)>);

impl Directories {
    fn at(&mut self, path: &Path) -> anyhow::Result<Arc<dyn Directory>> {
        let meta = path.metadata().with_context(|| path.display().to_string())?;
        let id = (meta.dev(), meta.ino());
        if let Some((_, known)) = self.0.iter().find(|(known, _)| *known == id) {
            return Ok(Arc::clone(known));
        }
        let directory: Arc<dyn Directory> = Arc::new(HostDirectory::new(path));
        self.0.push((id, Arc::clone(&directory)));
        Ok(directory)
    }
}

/// A file's directory and name.
pub fn split(path: &Path) -> anyhow::Result<(PathBuf, String)> {
    let Some(name) = path.file_name() else { bail!("{}: this is no file's path", path.display()) };
    let Some(name) = name.to_str() else { bail!("{}: the name is not UTF-8", path.display()) };
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    Ok((directory, name.to_owned()))
}
